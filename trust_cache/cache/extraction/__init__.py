"""Stage one: PNGs decoded ahead of the device, views encoded there, features written shard by shard."""
