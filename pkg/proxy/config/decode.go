package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// singleDocument converts a file to JSON. The YAML library would not even look at what stands behind the first
// document.
func singleDocument(text []byte) ([]byte, error) {
	documents := yamlv2.NewDecoder(bytes.NewReader(text))
	filled := 0
	for {
		var document any
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if document != nil {
			filled++
		}
	}
	if filled != 1 {
		return nil, fmt.Errorf("the file holds %d documents, and must hold one", filled)
	}
	return yaml.YAMLToJSONStrict(text)
}

// checkType refuses what is no configuration of kube-proxy, and knows what people take for one.
func checkType(document []byte) error {
	var is metav1.TypeMeta
	if err := json.Unmarshal(document, &is); err != nil {
		return fmt.Errorf("the file does not hold an object: %w", err)
	}
	switch {
	case is.Kind == "ConfigMap":
		return errors.New("the file is a ConfigMap; what is needed is the text under its key config.conf, as a pod sees it that mounts it")
	case is.APIVersion != APIVersion || is.Kind != kind:
		return fmt.Errorf("apiVersion %q and kind %q are not %s and %s", is.APIVersion, is.Kind, APIVersion, kind)
	}
	return nil
}

// strictError is what sigs.k8s.io/json returns for a field that is unknown or set twice.
type strictError interface {
	error
	FieldPath() string
}

// decode reads a document, and returns a note for each field that an older kube-proxy had. Everything else that is
// unknown, set twice or of the wrong type is an error.
func decode(document []byte, into *Configuration) (outdated []string, err error) {
	strict, err := kjson.UnmarshalStrict(document, into)
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s: must be %s, not %s", mistyped.Field, mistyped.Type, mistyped.Value)
	}
	errs := []error{err}
	for _, one := range strict {
		wrong, ok := errors.AsType[strictError](one)
		if !ok {
			errs = append(errs, one)
			continue
		}
		path := wrong.FieldPath()
		if why, ok := former[path]; ok {
			outdated = append(outdated, path+": "+why)
			continue
		}
		reason, _, _ := strings.Cut(wrong.Error(), ` "`)
		errs = append(errs, fmt.Errorf("%s: %s%s", path, reason, suggestion(path)))
	}
	return outdated, errors.Join(errs...)
}

// suggestion names the field that was probably meant: the same name in another place, or one that differs by a slip.
func suggestion(path string) string {
	known := paths(true)
	if slices.Contains(known, path) {
		return "" // it is set twice, and right
	}
	for _, isMeant := range []func(string) bool{
		func(other string) bool { return strings.EqualFold(path, other) },
		func(other string) bool { return policy.IsSlip(path, other) },
		func(other string) bool { return lastOf(path) == lastOf(other) },
		func(other string) bool { return policy.IsSlip(lastOf(path), lastOf(other)) },
	} {
		if at := slices.IndexFunc(known, isMeant); at >= 0 {
			return fmt.Sprintf("; did you mean %s?", known[at])
		}
	}
	return ""
}

func lastOf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
