"""What the hook recorded: the ring layout, its reader and call records."""
