package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// validation is a line of the output. Each resource is the JSON of its message.
type validation struct {
	Wrong     string            `json:"wrong,omitempty"`
	Version   string            `json:"version"`
	Nonce     string            `json:"nonce"`
	Type      string            `json:"type"`
	Resources []json.RawMessage `json:"resources"`
}

// validateAll reads discovery responses, each a line of base64, and validates them with Envoy's own types: it unpacks all
// messages, rejects fields that the types do not have, and validates the values. For each response it writes a line of
// JSON with the contents or with the error.
func validateAll(input io.Reader, output io.Writer) error {
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 64<<20)
	encoder := json.NewEncoder(output)
	for lines.Scan() {
		message, err := base64.StdEncoding.DecodeString(lines.Text())
		if err != nil {
			return err
		}
		result, err := validate(message)
		if err != nil {
			result.Wrong = err.Error()
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

func validate(message []byte) (validation, error) {
	var response discovery.DiscoveryResponse
	if err := proto.Unmarshal(message, &response); err != nil {
		return validation{}, err
	}
	result := validation{Version: response.VersionInfo, Nonce: response.Nonce, Type: response.TypeUrl}
	if err := checkMessage(&response); err != nil {
		return result, err
	}
	for _, packed := range response.Resources {
		resource, err := packed.UnmarshalNew()
		if err != nil {
			return result, err
		}
		if packed.TypeUrl != response.TypeUrl {
			return result, fmt.Errorf("resource has type %s", packed.TypeUrl)
		}
		if err := checkMessage(resource); err != nil {
			return result, err
		}
		text, err := protojson.Marshal(resource)
		if err != nil {
			return result, err
		}
		result.Resources = append(result.Resources, text)
	}
	return result, nil
}

// checkMessage returns an error if the message, or a message packed into it, has unknown fields or is invalid.
func checkMessage(message proto.Message) error {
	if valid, ok := message.(interface{ ValidateAll() error }); ok {
		if err := valid.ValidateAll(); err != nil {
			return err
		}
	}
	return checkUnknownFields(message.ProtoReflect())
}

func checkUnknownFields(message protoreflect.Message) error {
	if unknown := message.GetUnknown(); len(unknown) > 0 {
		return fmt.Errorf("%s has unknown fields: %x", message.Descriptor().FullName(), unknown)
	}
	var errs []error
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Message() == nil || field.IsMap() {
			return true
		}
		if !field.IsList() {
			errs = append(errs, checkUnknownFields(value.Message()))
			return true
		}
		for i := range value.List().Len() {
			errs = append(errs, checkUnknownFields(value.List().Get(i).Message()))
		}
		return true
	})
	if packed, ok := message.Interface().(*anypb.Any); ok {
		if inner, err := packed.UnmarshalNew(); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, checkMessage(inner))
		}
	}
	return errors.Join(errs...)
}
