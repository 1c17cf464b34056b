"""What every picture is drawn in: Okabe and Ito's colours, told apart by every kind of colour vision."""

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"

# Of a prior, in every picture.
COLORS = {
    "softmax": BLUE,
    "linear": GREEN,
    "gla": SKY,
    "rnn_softmax": ORANGE,
    "rnn_decay": PURPLE,
    "mamba": VERMILION,
    "torch sdpa": BLACK,
}
# Of curves that are no prior's, in turn; the first two are also the mean's (or attention's) and the free energy's.
CURVES = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK]
