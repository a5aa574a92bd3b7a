"""One file per data format, each behind the `Source` interface."""
