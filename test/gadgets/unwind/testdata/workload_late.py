# SPDX-License-Identifier: Apache-2.0
# Part of workload.py: a second thread, which begins once there is a file.
run(1, 300)
while not os.path.exists(sys.argv[6]):
    time.sleep(0.01)
thread = threading.Thread(target=run, args=(SAMPLES - 1, 301))
thread.start()
thread.join()
