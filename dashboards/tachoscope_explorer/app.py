"""The explorer's entry, run by Streamlit for each look.

It imports nothing of its own: to processes that analyze traces this is the main module, and they would begin with all pages.
"""

if __name__ == "__main__":
    from tachoscope_explorer.navigation import main

    main()
