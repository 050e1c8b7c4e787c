"""The policy that an owner starts with: nothing is allowed, and every clause is explained."""

TEMPLATE = """\
# What this machine may answer. Only you edit this file; nothing that arrives over the network can
# change it.

# The most privacy a record may lose over all campaigns together, and in any one campaign. All
# campaigns that one aggregator gives the same name count as one.
epsilon_per_record = 4.0
epsilon_per_campaign = 2.0

# The same for delta, the probability that an epsilon does not hold (campaigns with Gaussian noise).
delta_per_record = 1e-5
delta_per_campaign = 1e-6

# bits, monitor: one randomised bit a record. pairs: label and bit as one randomised symbol. labels:
# the randomised label, with the model's probabilities or the record's features in clear. central:
# counts of records, with noise of this machine's own, or exact if you allow it below. training: a
# model's weights after steps of DP-SGD. full-data: such counts of the records that trained the
# model, which pay for the training and for the calibration.
methods = ["bits"]

# Whether a model's probabilities may leave in clear; method labels needs it where this machine
# scores. Whoever made the model decides what these numbers say: they may spell out the features.
probabilities_may_leave = false

# Whether the features themselves, all numbers of a record but its label, may leave in clear; method
# labels needs it where the aggregator scores. No epsilon covers them. Neither clause allows the
# other.
features_may_leave = false

# Columns of your records whose values may leave in clear, with a report or as counts of records by
# value: a ward, a device. No epsilon covers them. They are no features: no model sees them.
# `confide-client allow column NAME`.
columns_may_leave = []

# Whether exact counts may leave, to an aggregator you trust to add the noise.
exact_counts_may_leave = false

# A query that concerns fewer of your records than this is refused.
minimum_group = 20

# Public keys (hexadecimal) of the aggregators whose plans are answered: `confide-client allow
# aggregator KEY`.
aggregators = []

# Public keys (hexadecimal) of the shufflers that plans may name; who runs one gives you its key
# with its certificate. An empty list accepts any, since your ledger charges as if there were none.
shufflers = []

# SHA-256 digests (hexadecimal) of the models that may score your records, or make the inputs of a
# network that is trained on top of them: `confide-client allow model FILE`. A model sees one record
# at a time, so what it returns for a record can depend on that record only.
models = []

# Models of the list above that you have looked into and trust to treat records one by one. They get
# many records at once, which is faster. A model made for it can let one record speak through all
# the others, and no epsilon bounds that.
vetted_models = []

# Whether a model may score your records that is not listed above, if it comes from a training that
# this machine took part in: same aggregator, and the file is the built-in network that was trained.
# It runs like any other: one record at a time. Only the aggregator knows that its weights are those
# that were trained, so the probabilities of an unlisted model never leave in clear; exact counts of
# its scores do if you allow exact counts.
trained_models = false

# Networks of packages on this machine that may be trained on your records, each as "module:factory
# argument=value digest of the package's files": `confide-client allow architecture NETWORK`. It is
# code that you installed and that sees your records, run with these arguments and no others;
# built-in networks need no entry. It sees one record at a time, unless the entry ends with the word
# vetted (`--vetted`): then it gets many at once, which is faster. You have looked into it, and
# trust it to treat records one by one at any weights.
architectures = []
"""
