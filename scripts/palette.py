"""What every picture draws a prior in."""

# Okabe and Ito's colours, told apart by every kind of colour vision.
COLORS = {
    "softmax": "#0072B2",
    "linear": "#009E73",
    "gla": "#56B4E9",
    "rnn_softmax": "#E69F00",
    "rnn_decay": "#CC79A7",
    "mamba": "#D55E00",
    "torch sdpa": "#000000",
}
