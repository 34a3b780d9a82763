package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// The type of our own document, which may be in the same file as kube-proxy's.
const (
	VicinityAPIVersion = vicinityConfigzKey + "/v1alpha1"
	VicinityKind       = "VicinityProxyConfiguration"

	vicinityConfigzKey = "proxy.config.vicinity.dev"
)

var vicinityType = manifest.Type{APIVersion: VicinityAPIVersion, Kind: VicinityKind}

// VicinityConfig describes the settings that kube-proxy does not have. With the zero value the document is not read.
type VicinityConfig struct {
	// Fields maps the names of all settings to whether they are booleans; the others are strings.
	Fields map[string]bool
	// Check returns an error about invalid values.
	Check func(values map[string]string) error
}

// decode reads the document. It is strict, because no older program reads such files.
func (c *VicinityConfig) decode(document *manifest.Part) (map[string]string, error) {
	if c.Fields == nil {
		return nil, nil
	}
	var errs []error
	var content map[string]any
	for _, fault := range document.Decode(&content) {
		errs = append(errs, fmt.Errorf("%s: %s", fault.Field, fault.Reason))
	}
	delete(content, "apiVersion")
	delete(content, "kind")
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		value, err := c.valueText(name, content[name])
		if errs = append(errs, err); err == nil {
			values[name] = value
		}
	}
	if err := errors.Join(errs...); err != nil || c.Check == nil {
		return values, err
	}
	return values, c.Check(values)
}

// valueText returns the value of a field in the format of its flag.
func (c *VicinityConfig) valueText(name string, value any) (string, error) {
	isBool, known := c.Fields[name]
	if !known {
		message := name + ": " + manifest.UnknownField
		if suggested := policy.Suggest(name, slices.Sorted(maps.Keys(c.Fields))...); suggested != "" {
			message += "; did you mean " + suggested + "?"
		} else if slices.ContainsFunc(fieldPaths(true), func(path string) bool { return path == name }) {
			message += "; it belongs in the document of kind " + kind
		}
		return "", errors.New(message)
	}
	text, isText := value.(string)
	boolValue, isBoolValue := value.(bool)
	switch {
	case isBool && isBoolValue:
		return strconv.FormatBool(boolValue), nil
	case isBool:
		return "", fmt.Errorf("%s: must be true or false", name)
	case !isText:
		return "", fmt.Errorf("%s: must be a string, not %v; quote it", name, value)
	}
	return text, nil
}

// document returns the document with values of the right types. The given values are in the format of flags.
func (c *VicinityConfig) document(values map[string]string) map[string]any {
	document := map[string]any{"apiVersion": VicinityAPIVersion, "kind": VicinityKind}
	for name, text := range values {
		if document[name] = text; c.Fields[name] {
			document[name] = text == "true"
		}
	}
	return document
}

// VicinityField returns the document's field for a flag: dnsBindAddress for dns-bind-address.
func VicinityField(flag string) string {
	words := strings.Split(flag, "-")
	for i, word := range words[1:] {
		if word = strings.ToUpper(word[:1]) + word[1:]; word == "Ttl" {
			word = "TTL"
		}
		words[i+1] = word
	}
	return strings.Join(words, "")
}
