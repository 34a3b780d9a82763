package main

import (
	"io"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// judgeBootstrap reads an Envoy's bootstrap as JSON. It takes everything apart, refuses fields that the types do not have,
// and validates all of it, as an Envoy does before it starts.
func judgeBootstrap(input io.Reader, _ io.Writer) error {
	text, err := io.ReadAll(input)
	if err != nil {
		return err
	}
	var message bootstrap.Bootstrap
	if err := protojson.Unmarshal(text, &message); err != nil {
		return err
	}
	return isWhole(&message)
}
