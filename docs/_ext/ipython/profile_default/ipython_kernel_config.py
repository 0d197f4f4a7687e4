"""Of the kernel that runs the notebooks: figures in the page, as SVG, and no history."""

c = get_config()
c.IPKernelApp.matplotlib = "inline"
c.InlineBackend.figure_formats = {"svg"}
c.HistoryManager.enabled = False
# 40: errors alone; the kernel speaks to the build of this machine only.
c.IPKernelApp.log_level = 40
