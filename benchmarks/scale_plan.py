def main(file, phones, plot):
    pass
