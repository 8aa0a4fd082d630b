"""Programs of other libraries that weft is measured beside; each runs without weft."""
