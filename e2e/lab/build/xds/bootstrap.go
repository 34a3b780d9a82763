package main

import (
	"io"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// validateBootstrap validates an Envoy bootstrap configuration in JSON. It unpacks all messages, rejects fields that the
// types do not have, and validates everything, as Envoy does before it starts.
func validateBootstrap(input io.Reader, _ io.Writer) error {
	text, err := io.ReadAll(input)
	if err != nil {
		return err
	}
	var message bootstrap.Bootstrap
	if err := protojson.Unmarshal(text, &message); err != nil {
		return err
	}
	return checkMessage(&message)
}
