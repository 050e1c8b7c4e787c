"""Sums of clipped per-record gradients of any torch model: one step of DP-SGD before noise.

Five engines find the same gradients; `make_clipper` takes the first that fits the model:

    stack       closed form of linear layers and elementwise functions in a row
    ghost       gradients of layer inputs and outputs, for common layers called once each
    hooks       Opacus: every record's gradient, for all layers that Opacus supports
    functional  torch.func: every record's gradient by vmap, for transformers and other layers
    single      plain automatic differentiation, one record at a time, for recurrent layers

All of them give `parts` (`confide.client.training.engines.parts`), and one function clips them
(`confide.client.training.engines.clipper`). Sums are float64 in lattice units
(`confide.protocol.exact.lattice`): a record's share has a norm of at most CLIP_UNITS. That holds
where model and loss treat every record by itself; `confide.client.training.engines.probe` tries
whether they do.
"""
