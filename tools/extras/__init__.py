"""What the extras promise, tried: their oldest and newest versions, each in its own environment."""
