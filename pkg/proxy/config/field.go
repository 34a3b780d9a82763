package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Configuration is kube-proxy's configuration. It is an alias, so that callers need not import its package.
type Configuration = v1alpha1.KubeProxyConfiguration

// Get returns the text of a field as Set accepts it; empty if nothing is set. The path must be one that Kubernetes
// documents, such as conntrack.maxPerCore; any other is a bug, and panics.
func Get(c *Configuration, path string) string { return textOf(field(c, path)) }

// Set parses text, such as the value of a flag, and sets a field to the result. Lists are comma-separated. So are
// feature gates, as A=true; gates that the text does not name keep their value.
func Set(c *Configuration, path, text string) error {
	value := field(c, path)
	if value.Kind() == reflect.Pointer {
		value.Set(reflect.New(value.Type().Elem()))
		value = value.Elem()
	}
	if duration, ok := reflect.TypeAssert[*metav1.Duration](value.Addr()); ok {
		parsed, err := time.ParseDuration(text)
		*duration = metav1.Duration{Duration: parsed}
		return err
	}
	return setPlain(value, text)
}

// setPlain sets a value that is not a structure.
func setPlain(value reflect.Value, text string) error {
	switch value.Kind() {
	case reflect.String:
		value.SetString(text)
	case reflect.Bool:
		parsed, err := strconv.ParseBool(text)
		value.SetBool(parsed)
		return err
	case reflect.Int32:
		parsed, err := strconv.ParseInt(text, 10, 32)
		value.SetInt(parsed)
		return err
	case reflect.Uint32:
		parsed, err := strconv.ParseUint(text, 10, 32)
		value.SetUint(parsed)
		return err
	case reflect.Float32:
		parsed, err := strconv.ParseFloat(text, 32)
		value.SetFloat(parsed)
		return err
	case reflect.Slice:
		var list []string
		if text != "" {
			list = strings.Split(text, ",")
		}
		value.Set(reflect.ValueOf(list))
	case reflect.Map:
		return setGates(value.Addr().Interface().(*map[string]bool), text)
	default:
		panic(fmt.Sprintf("cannot set a %s from text", value.Type()))
	}
	return nil
}

// IsSettable reports whether Set supports the field's type.
func IsSettable(path string) bool {
	t := typeOf(path)
	return t.Kind() != reflect.Struct && (t.Kind() != reflect.Slice || IsList(path)) ||
		t == reflect.TypeFor[metav1.Duration]()
}

// IsBool reports whether a field is a boolean.
func IsBool(path string) bool { return typeOf(path).Kind() == reflect.Bool }

// IsText reports whether a field is a string.
func IsText(path string) bool { return typeOf(path).Kind() == reflect.String }

// IsList reports whether a field is a list of strings.
func IsList(path string) bool { return typeOf(path) == reflect.TypeFor[[]string]() }

// isPointer reports whether a field's zero value differs from an unset field.
func isPointer(path string) bool { return field(&Configuration{}, path).Kind() == reflect.Pointer }

// typeOf returns the type of a field, or of the value that it points to.
func typeOf(path string) reflect.Type {
	t := field(&Configuration{}, path).Type()
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// textOf returns a field's value as Set accepts it. It also formats values that Set does not support. The text of an
// unset value is empty.
func textOf(value reflect.Value) string {
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return ""
		}
		value = value.Elem()
	}
	switch v := value.Interface().(type) {
	case metav1.Duration:
		return v.Duration.String()
	case logsapi.TimeOrMetaDuration:
		return v.Duration.Duration.String()
	case resource.QuantityValue:
		return v.String()
	case []string:
		return strings.Join(v, ",")
	case map[string]bool:
		return textOfGates(v)
	}
	if value.IsZero() && value.Kind() == reflect.Slice {
		return ""
	}
	return fmt.Sprint(value.Interface())
}

// fieldInfo is a field of the file.
type fieldInfo struct {
	path      string
	index     []int // in Configuration
	isSection bool  // has fields of its own
}

// allFields are all fields, each section before its fields.
var allFields = fieldsOf(reflect.TypeFor[Configuration](), "", nil)

func fieldsOf(t reflect.Type, parent string, index []int) (all []fieldInfo) {
	for field := range t.Fields() {
		fieldIndex := slices.Concat(index, field.Index)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous { // inlined (encoding/json)
			all = append(all, fieldsOf(field.Type, parent, fieldIndex)...)
			continue
		}
		info := fieldInfo{strings.TrimPrefix(parent+"."+name, "."), fieldIndex, isSection(field.Type)}
		if all = append(all, info); info.isSection {
			all = append(all, fieldsOf(field.Type, info.path, fieldIndex)...)
		}
	}
	return all
}

// field returns a field by its path in the file.
func field(c *Configuration, path string) reflect.Value {
	i := slices.IndexFunc(allFields, func(info fieldInfo) bool { return info.path == path })
	if i < 0 {
		panic(fmt.Sprintf("kube-proxy's configuration has no field %s", path))
	}
	return reflect.ValueOf(c).Elem().FieldByIndex(allFields[i].index)
}

// fieldPaths returns the path of every field that holds a value; if withSections is set, also those of the sections.
func fieldPaths(withSections bool) (all []string) {
	for _, info := range allFields {
		if withSections || !info.isSection {
			all = append(all, info.path)
		}
	}
	return all
}

// isSection reports whether a type is written in the file as a section with fields. Durations and quantities are structs
// that are written as one value.
func isSection(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration](), reflect.TypeFor[resource.QuantityValue]():
		return false
	}
	return t.Kind() == reflect.Struct
}
