"""The pages, one a file, each with `show(context)`. Not named `pages`: Streamlit takes the files of such a folder for its own."""
