// Package hostile inserts terminal control sequences and forged lines into texts, and finds them in output.
package hostile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is the start of a forged line if Text is printed unescaped.
const Line = "forged"

// Text controls a terminal in each of the ways that Unicode has, and breaks lines: ESC, C1, DEL, BEL, a change of the
// writing direction, and line ends.
const Text = "\x1b[31m\u009b31m\x7f\a\u202e\n" + Line + "\r" + Line + "\u0085" + Line + "\u2028" + Line + "\t" + Line

// Found describes the first unsafe content of an output. It returns an empty string if the output is safe.
func Found(output string) string {
	for i, r := range output {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(output[i:], string(utf8.RuneError)):
			return fmt.Sprintf("invalid UTF-8 at byte %d", i)
		case r == '\n', r == '\t':
		case unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp):
			return fmt.Sprintf("unsafe character at byte %d: %U", i, r)
		}
	}
	for line := range strings.Lines(output) {
		if strings.HasPrefix(strings.TrimSpace(line), Line) {
			return fmt.Sprintf("forged line: %q", line)
		}
	}
	return ""
}

// EachName calls do once for each string in a JSON text, both keys and values, with a copy of the JSON text in which
// Text follows every occurrence of that string.
func EachName(text []byte, do func(name string, text []byte)) error {
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		return err
	}
	names := map[string]bool{}
	renamed(root, func(name string) string { names[name] = true; return name })
	for name := range names {
		hostile, err := json.Marshal(renamed(root, func(other string) string {
			if other == name {
				return name + Text
			}
			return other
		}))
		if err != nil {
			return err
		}
		do(name, hostile)
	}
	return nil
}

// renamed returns a copy of a JSON value with renamed strings.
func renamed(value any, rename func(string) string) any {
	switch value := value.(type) {
	case string:
		return rename(value)
	case []any:
		list := slices.Clone(value)
		for i := range list {
			list[i] = renamed(list[i], rename)
		}
		return list
	case map[string]any:
		fields := map[string]any{}
		for key, field := range value {
			fields[rename(key)] = renamed(field, rename)
		}
		return fields
	}
	return value
}

// EachField calls do once for each string that a value may hold, including fields that are empty. During the call Text
// follows that string, an empty list has an element, and any map has an additional one.
func EachField(value any, do func(field string)) { eachField(reflect.ValueOf(value).Elem(), "", do) }

func eachField(v reflect.Value, path string, do func(field string)) {
	original := reflect.New(v.Type()).Elem()
	original.Set(v)
	defer v.Set(original)
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + Text)
		do(path)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		eachField(v.Elem(), path, do)
	case reflect.Struct:
		if _, isText := reflect.TypeAssert[json.Marshaler](v.Addr()); isText {
			return // a time, a quantity
		}
		for i := range v.NumField() {
			eachField(v.Field(i), path+"."+v.Type().Field(i).Name, do)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		list := reflect.MakeSlice(v.Type(), max(1, v.Len()), max(1, v.Len()))
		reflect.Copy(list, v)
		v.Set(list)
		for i := range v.Len() {
			eachField(v.Index(i), fmt.Sprintf("%s[%d]", path, i), do)
		}
	case reflect.Map:
		eachEntry(v, path, do)
	default: // a number
	}
}

// eachEntry is eachField for a map: its values, and one additional key.
func eachEntry(v reflect.Value, path string, do func(field string)) {
	entries := reflect.MakeMap(v.Type())
	for _, key := range v.MapKeys() {
		entries.SetMapIndex(key, v.MapIndex(key))
	}
	v.Set(entries)
	for _, key := range v.MapKeys() {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		eachField(value, fmt.Sprintf("%s[%s]", path, key), func(field string) {
			entries.SetMapIndex(key, value)
			do(field)
		})
		entries.SetMapIndex(key, value)
	}
	key := reflect.New(v.Type().Key()).Elem()
	key.SetString("key" + Text)
	entries.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
	do(path + "[key]")
}
