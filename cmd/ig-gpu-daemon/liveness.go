// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// livenessTimeout is Inspektor Gadget's: longer than any probe of its chart waits,
// so that it is the kubelet who gives up.
const livenessTimeout = time.Minute

// checkLiveness is run by the pod's probes: the result is the exit code.
func checkLiveness(socket string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("check %s: %w", socket, err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), livenessTimeout)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("check %s: %w", socket, err)
	}
	if status := answer.GetStatus(); status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("the daemon is %s", status)
	}
	fmt.Println("the daemon is serving")
	return nil
}
