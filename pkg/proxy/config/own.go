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
	OwnAPIVersion = ownConfigzKey + "/v1alpha1"
	OwnKind       = "VicinityProxyConfiguration"

	ownConfigzKey = "proxy.config.vicinity.dev"
)

var ownType = manifest.Type{APIVersion: OwnAPIVersion, Kind: OwnKind}

// VicinityConfig are the settings that kube-proxy does not have. With the zero value the document is not read.
type VicinityConfig struct {
	// Fields are the names of all settings, and whether each is true or false; the others are texts.
	Fields map[string]bool
	// Check returns what is wrong with the values of some settings.
	Check func(values map[string]string) error
}

// decode reads the document. It is strict, because no older program reads such files.
func (o *VicinityConfig) decode(document *manifest.Part) (map[string]string, error) {
	if o.Fields == nil {
		return nil, nil
	}
	var errs []error
	var read map[string]any
	for _, fault := range document.Decode(&read) {
		errs = append(errs, fmt.Errorf("%s: %s", fault.Field, fault.Reason))
	}
	delete(read, "apiVersion")
	delete(read, "kind")
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		value, err := o.text(name, read[name])
		if errs = append(errs, err); err == nil {
			values[name] = value
		}
	}
	if err := errors.Join(errs...); err != nil || o.Check == nil {
		return values, err
	}
	return values, o.Check(values)
}

// text returns the value of a field, as the flag for it has it.
func (o *VicinityConfig) text(name string, value any) (string, error) {
	isBool, known := o.Fields[name]
	if !known {
		unknown := name + ": " + manifest.UnknownField
		if meant := policy.Suggest(name, slices.Sorted(maps.Keys(o.Fields))...); meant != "" {
			unknown += "; did you mean " + meant + "?"
		} else if slices.ContainsFunc(paths(true), func(path string) bool { return path == name }) {
			unknown += "; it belongs in the document of kind " + kind
		}
		return "", errors.New(unknown)
	}
	text, isText := value.(string)
	truth, isTruth := value.(bool)
	switch {
	case isBool && isTruth:
		return strconv.FormatBool(truth), nil
	case isBool:
		return "", fmt.Errorf("%s: must be true or false", name)
	case !isText:
		return "", fmt.Errorf("%s: must be a text, not %v; quote it", name, value)
	}
	return text, nil
}

// typed returns values as they are written in a document, with its type.
func (o *VicinityConfig) typed(values map[string]string) map[string]any {
	document := map[string]any{"apiVersion": OwnAPIVersion, "kind": OwnKind}
	for name, text := range values {
		if document[name] = text; o.Fields[name] {
			document[name] = text == "true"
		}
	}
	return document
}

// VicinityField is the name that the setting of a flag has in the document: dnsBindAddress for dns-bind-address.
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
