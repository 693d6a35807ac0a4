"""The networks behind the encoder: checkpoints read safely, Mammo-CLIP's B5, timm models."""
