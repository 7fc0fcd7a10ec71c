"""Trials of the extras: their oldest and newest versions, each in its own environment."""
