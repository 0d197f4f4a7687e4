// Puts each formula in the place of its TeX. A formula that KaTeX cannot read stays as TeX and tells the console.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".math")) {
    katex.render(element.textContent, element, { displayMode: "display" in element.dataset, throwOnError: true });
  }
});
