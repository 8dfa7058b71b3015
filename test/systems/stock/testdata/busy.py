# SPDX-License-Identifier: Apache-2.0
# A process that is in line 7 all the time; tests know the lines.


class Model:
    def forward(self):
        while True: pass


def main():
    Model().forward()


main()
