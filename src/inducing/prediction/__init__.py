"""What a fitted network says about new data, how good that is, and how it looks."""
