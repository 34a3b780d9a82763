package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// imageRecipe describes the image that the last stage of a Dockerfile builds.
type imageRecipe struct {
	// Base is the base image; scratch is the empty one.
	Base string
	// Files are the copied files: by path in the image, with their source.
	Files      map[string]string
	User       string
	Entrypoint []string
}

// instruction is a line of a Dockerfile, including its continuation lines.
type instruction struct{ name, arguments string }

// instructionsOf returns a Dockerfile's instructions, without comments.
func instructionsOf(text string) []instruction {
	var all []instruction
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") { // comments may stand between continuation lines
			lines = append(lines, strings.TrimRight(line, " \t\r\n"))
		}
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			name, arguments, _ := strings.Cut(line, " ")
			all = append(all, instruction{name, strings.TrimSpace(arguments)})
		}
	}
	return all
}

// recipeOf parses the last stage of a Dockerfile. An unknown instruction is an error, because it may add something to
// the image.
func recipeOf(text string) (imageRecipe, error) {
	arguments := map[string]string{}
	var stage []instruction
	for _, current := range instructionsOf(text) {
		switch {
		case current.name == "FROM":
			stage = []instruction{current}
		case stage != nil:
			stage = append(stage, current)
		case current.name == "ARG":
			name, value, _ := strings.Cut(current.arguments, "=")
			arguments[name] = value
		default:
			return imageRecipe{}, fmt.Errorf("%s before FROM", current.name)
		}
	}
	recipe := imageRecipe{Files: map[string]string{}}
	for _, current := range stage {
		if err := recipe.add(current, arguments); err != nil {
			return imageRecipe{}, fmt.Errorf("%s %s: %w", current.name, current.arguments, err)
		}
	}
	return recipe, nil
}

func (r *imageRecipe) add(current instruction, arguments map[string]string) error {
	switch current.name {
	case "FROM":
		return r.setBase(current.arguments, arguments)
	case "COPY":
		return r.copy(strings.Fields(current.arguments))
	case "USER":
		r.User = current.arguments
		return nil
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(current.arguments), &r.Entrypoint)
	}
	return fmt.Errorf("unknown instruction")
}

// setBase accepts an image without options. An argument may name it.
func (r *imageRecipe) setBase(image string, arguments map[string]string) error {
	r.Base = os.Expand(image, func(name string) string { return arguments[name] })
	if r.Base == "" || strings.ContainsAny(r.Base, " \t") {
		return fmt.Errorf("want the name of one image, got %q", r.Base)
	}
	return nil
}

// copy accepts one file from another stage to an absolute path.
func (r *imageRecipe) copy(args []string) error {
	if len(args) != 3 || !strings.HasPrefix(args[0], "--from=") || !path.IsAbs(args[2]) || strings.HasSuffix(args[2], "/") {
		return fmt.Errorf("want --from=STAGE FILE /FILE")
	}
	r.Files[args[2]] = args[1]
	return nil
}

func TestTheLastStageOfADockerfileIsRead(t *testing.T) {
	got, err := recipeOf(`# syntax=docker/dockerfile:1
ARG BASE=scratch
FROM golang AS build
ENV X=1
COPY . .
RUN go build \
    # for scratch
    -o /out/p
FROM ${BASE}
COPY --from=build \
  /out/p /p
USER 1:2
ENTRYPOINT ["/p", "run"]
`)
	if err != nil {
		t.Fatal(err)
	}
	want := imageRecipe{Base: "scratch", Files: map[string]string{"/p": "/out/p"}, User: "1:2", Entrypoint: []string{"/p", "run"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the recipe differs (-want +got):\n%s", diff)
	}
}

func TestUnknownInstructionsInTheLastStageAreErrors(t *testing.T) {
	for line, want := range map[string]string{
		"ENV X=1":                         "unknown instruction",
		"RUN touch /x":                    "unknown instruction",
		"ADD x /x":                        "unknown instruction",
		"copy --from=build /x /x":         "unknown instruction",
		"ENTRYPOINT /p run":               "invalid character",
		"COPY x /x":                       "want --from=STAGE FILE /FILE",
		"COPY --from=build /x /y /z/":     "want --from=STAGE FILE /FILE",
		"COPY --from=build /x /":          "want --from=STAGE FILE /FILE",
		"COPY --from=build --chmod=1 a b": "want --from=STAGE FILE /FILE",
		"FROM --platform=x scratch":       "want the name of one image",
		"FROM ${UNKNOWN}":                 "want the name of one image",
	} {
		_, err := recipeOf("FROM scratch\n" + line + "\n")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), line) {
			t.Errorf("%s: error %v, want %s", line, err, want)
		}
	}
	if _, err := recipeOf("RUN x\nFROM scratch\n"); err == nil {
		t.Error("an instruction before the first FROM was accepted")
	}
}
