package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// wanted is the type of the one document.
var wanted = manifest.Type{APIVersion: APIVersion, Kind: kind}

// singleDocument returns the one document of a file, and refuses what is no configuration of kube-proxy.
func singleDocument(text []byte) (*manifest.Part, error) {
	parts := slices.Collect(manifest.Parts(manifest.YAML, text, wanted))
	if len(parts) != 1 {
		return nil, fmt.Errorf("the file holds %d documents, and must hold one", len(parts))
	}
	part := &parts[0]
	switch fault := part.Fault; {
	case fault != nil && fault.Line > 0:
		return nil, fmt.Errorf("line %d: %s", fault.Line, fault.Reason)
	case part.Type.Kind == "ConfigMap":
		return nil, errors.New("the file is a ConfigMap; what is needed is the text under its key config.conf, as a pod sees it that mounts it")
	case part.Type != wanted:
		return nil, fmt.Errorf("apiVersion %q and kind %q are not %s and %s", part.Type.APIVersion, part.Type.Kind, APIVersion, kind)
	case fault != nil:
		return nil, fmt.Errorf("%s: %s", fault.Field, fault.Reason)
	}
	return part, nil
}

// decode reads a document, and returns a note for each field that an older kube-proxy had. Everything else that is
// unknown, set twice or of the wrong type is an error.
func decode(document *manifest.Part, into *Configuration) (outdated []string, err error) {
	var errs []error
	for _, fault := range document.Decode(into) {
		path, text := fault.Field, fault.Reason
		if why, ok := former[path]; ok {
			outdated = append(outdated, path+": "+why)
			continue
		}
		if path != "" {
			text = path + ": " + text
		}
		if fault.Reason == manifest.UnknownField {
			text += suggestion(path)
		}
		errs = append(errs, errors.New(text))
	}
	return outdated, errors.Join(errs...)
}

// suggestion names the field that was probably meant: the same name in another place, or one that differs by a slip.
func suggestion(path string) string {
	known := paths(true)
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
