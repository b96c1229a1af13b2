"""Arrays whose items must differ (`uniqueItems`)."""
