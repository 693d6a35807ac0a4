"""What an extraction will take: room on the disk and time on this device, before it is begun."""
