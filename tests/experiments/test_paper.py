from inducing.experiments.paper import published


def test_the_published_numbers_are_there():
    tables = published()
    assert tables["uci_bnn"]["yacht"]["NealPrior"]["global"]["elbo_per_datapoint"] == [0.74, 0.01]
    assert tables["toy_compositional_bnn"]["global"]["elbo_per_datapoint"] == -2.236
