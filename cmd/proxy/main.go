// Command proxy is Vicinity's service proxy. It runs on every node and sends each connection to a Service to the
// nearest endpoint that the Service's settings allow.
//
// The commands are in files of their names. The settings of status, flows and explain, which are those of the running
// proxy, are in running.go, and the rules that forecast applies in forecast_rules.go. What both programs share is in
// package cli.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func main() {
	root := newRoot()
	if filepath.Base(os.Args[0]) == pluginName {
		root = newPlugin()
	}
	cli.Main(context.Background(), root)
}
