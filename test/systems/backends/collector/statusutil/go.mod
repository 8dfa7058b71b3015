// Replaces a module that the Go proxy does not have: see ../main.go.
module go.opentelemetry.io/collector/internal/statusutil

go 1.26

require (
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260401024825-9d38bb4040a9
	google.golang.org/grpc v1.80.0
)
