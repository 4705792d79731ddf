TITLE="x"
