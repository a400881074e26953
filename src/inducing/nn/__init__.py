"""What a user composes: layers, posteriors, priors, likelihoods, networks."""
