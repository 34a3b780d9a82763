// Command xds is what others wrote for xDS, as judges of what the proxy serves. `xds judge` holds responses against Envoy's
// own types, and `xds client` is applications that dial with grpc-go. For benchmarks `xds crowd` is many streams, and `xds
// cache` is go-control-plane's own server.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// roles are what the program can be. Each reads standard input to its end.
var roles = map[string]func(io.Reader, io.Writer) error{
	"judge": judgeAll, "client": dialAll, "crowd": watchAll, "cache": serveCache,
}

func main() {
	role := roles[os.Args[len(os.Args)-1]]
	err := errors.New("want one argument: judge, client, crowd or cache")
	if role != nil {
		err = role(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
