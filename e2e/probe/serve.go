package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	servicePort = ":8080"
	controlPort = ":8081"
)

// serve runs the servers until the context ends, and for $GRACE longer. During that time it stays ready and keeps
// serving, like a pod with open connections to finish, so its endpoint is terminating and serving.
func serve(ctx context.Context, out io.Writer) error {
	name, err := identity()
	if err != nil {
		return err
	}
	grace, err := gracePeriod(os.Getenv("GRACE"))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", servicePort)
	if err != nil {
		return fmt.Errorf("listen for TCP: %w", err)
	}
	defer listener.Close()
	packets, err := net.ListenPacket("udp", servicePort)
	if err != nil {
		return fmt.Errorf("listen for UDP: %w", err)
	}
	defer packets.Close()
	controlListener, err := net.Listen("tcp", controlPort)
	if err != nil {
		return fmt.Errorf("listen for commands: %w", err)
	}
	defer controlListener.Close()
	control := &http.Server{Handler: newControl(), ReadHeaderTimeout: time.Minute}

	errs := make(chan error, 3)
	go func() { errs <- greetConnections(listener, name) }()
	go func() { errs <- greetPackets(packets, name) }()
	go func() { errs <- control.Serve(controlListener) }()
	fmt.Fprintf(out, "%s serves\n", name)
	select {
	case err := <-errs:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintf(out, "%s continues for %s\n", name, grace)
	select {
	case err := <-errs:
		return err
	case <-time.After(grace):
		return nil
	}
}

var errNoName = errors.New("$POD_NAME is not set: the probe replies with this name")

func identity() (string, error) {
	name := os.Getenv("POD_NAME")
	if name == "" {
		return "", errNoName
	}
	return name, nil
}

func gracePeriod(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	grace, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("read $GRACE: %w", err)
	}
	return grace, nil
}
