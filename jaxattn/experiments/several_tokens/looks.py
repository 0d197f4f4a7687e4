"""How the figures write and draw each description of W."""

# For each of `descriptions.SOLUTIONS`: its label, colour, dashes and marker.
LOOKS = {
    "W_SVMeq": (r"$W_{\mathrm{fin}} + C\,W_{\mathrm{mm}}$", "#0072B2", "-", "o"),
    "W_mm": (r"$W_{\mathrm{mm}}$", "#D55E00", "--", "s"),
    "W_1token": ("single token", "#009E73", "-.", "^"),
    "W_fin": (r"$W_{\mathrm{fin}}$, fitted to $W$", "#999999", ":", ""),
}
# For below the figures that draw these.
FITTED = (
    r"$W_{\mathrm{fin}}$ is fitted to $W$: its sum with $C\,W_{\mathrm{mm}}$ is by construction no farther than "
    r"$W_{\mathrm{mm}}$."
)
