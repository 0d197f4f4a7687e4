"""How the figures write and draw each description of W."""

from jaxattn.study.style import palette

# For each of `descriptions.SOLUTIONS`: its label, colour, dashes and marker.
LOOKS = {
    "W_SVMeq": (r"$W_{\mathrm{fin}} + C\,W_{\mathrm{mm}}$", palette.TEAL, "-", "o"),
    "W_mm": (r"$W_{\mathrm{mm}}$", palette.WINE, "--", "s"),
    "W_1token": ("single token", palette.AMBER, "-.", "^"),
    "W_fin": (r"$W_{\mathrm{fin}}$, fitted to $W$", palette.EXCLUDED, ":", ""),
}
# For below the figures that draw these.
FITTED = (
    r"$W_{\mathrm{fin}}$ is fitted to $W$: its sum with $C\,W_{\mathrm{mm}}$ is by construction no farther than "
    r"$W_{\mathrm{mm}}$."
)
