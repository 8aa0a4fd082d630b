"""Delivery orders: machines that stand between a router and the app, and decide when a message may be handed up."""
