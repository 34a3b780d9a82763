// Command proxy is Vicinity's service proxy. It runs once on every node and sends each connection to a Service to the
// nearest endpoint that the Service's owner allows.
package main

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func main() { cli.Main(context.Background(), newRoot()) }
