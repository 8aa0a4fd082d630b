"""Publish/subscribe on real sockets: the API for applications, and the commands of a live peer."""
