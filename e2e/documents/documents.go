// Package documents extracts the commands from the documents, for the tests that run them unchanged.
package documents

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// Command is one command of a document.
type Command struct {
	Chapter string // the level-2 heading above it; empty before the first
	Text    string // all its lines, unchanged, without the block's indentation
	// Inline reports whether the command is in a sentence, and not in a block.
	Inline bool
}

var (
	fence   = regexp.MustCompile("^( *)```([a-z]*)$")
	heading = regexp.MustCompile(`^## (.*)$`)
	inline  = regexp.MustCompile("(?s)`([^`]+)`")
	// program matches the beginning of a command.
	program = regexp.MustCompile(`^(\$ )?(sudo )?(kubectl|make|proxy|webhook|bin/[a-z]+|nft|ufw|docker|curl) `)
	// inlineCommand matches a command in a sentence, or a flag with its value. Two words such as "proxy explain" are only a name.
	inlineCommand = regexp.MustCompile(`^(make \S|--[a-z-]+ \S|(kubectl|proxy|webhook|nft|ufw|docker|curl|bin/[a-z]+) \S+ \S)`)
	heredoc       = regexp.MustCompile(`<<'?([A-Z]+)'?`)
)

// Commands returns the commands of a document: those in its blocks of shell commands, and those in its sentences. The
// document's path is relative to the repository's root. A block with commands that is not marked as shell fails the
// test.
func Commands(t testing.TB, document string) []Command {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repositoryRoot(t), document))
	must.Succeed(t, err)
	all, err := commands(string(text))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return all
}

// Script returns the commands in the blocks of a chapter as one script, except for those in without.
func Script(t testing.TB, document, chapter string, without ...string) string {
	t.Helper()
	var script []string
	for _, command := range Commands(t, document) {
		if command.Chapter == chapter && !command.Inline && !slices.Contains(without, command.Text) {
			script = append(script, command.Text)
		}
	}
	if len(script) == 0 {
		t.Fatalf("%s has no commands in a chapter %q", document, chapter)
	}
	return strings.Join(script, "\n")
}

// Lines returns the lines of a chapter's block from the comment that begins with title to the next empty line, without
// the comment: commands for one program, or lines of its file.
func Lines(t testing.TB, document, chapter, title string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repositoryRoot(t), document))
	must.Succeed(t, err)
	_, body, _ := strings.Cut(string(text), "\n## "+chapter+"\n")
	body, _, _ = strings.Cut(body, "\n## ")
	_, rest, found := strings.Cut(body, "\n# "+title)
	_, rest, _ = strings.Cut(rest, "\n") // the rest of the comment's line
	rest, _, _ = strings.Cut(rest, "\n\n")
	rest, _, _ = strings.Cut(rest, "\n```")
	if !found || rest == "" {
		t.Fatalf("%s has no lines after a comment %q in a chapter %q", document, title, chapter)
	}
	return strings.Split(rest, "\n")
}

// repositoryRoot returns the repository's top folder.
func repositoryRoot(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	must.Succeed(t, err)
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			t.Fatal("the working directory is not in the repository")
		}
		folder = filepath.Dir(folder)
	}
}

func commands(text string) ([]Command, error) {
	var s scanner
	for line := range strings.Lines(text) {
		if err := s.read(strings.TrimSuffix(line, "\n")); err != nil {
			return nil, err
		}
	}
	s.endProse()
	return s.found, nil
}

// scanner reads a document line by line.
type scanner struct {
	found            []Command
	chapter          string
	prose, block     strings.Builder
	inBlock          bool
	language, indent string // of the block
}

func (s *scanner) read(line string) error {
	mark := fence.FindStringSubmatch(line)
	switch {
	case mark != nil && s.inBlock:
		s.endBlock()
	case mark != nil:
		s.endProse()
		s.inBlock, s.indent, s.language = true, mark[1], mark[2]
	case s.inBlock:
		line = strings.TrimPrefix(line, s.indent)
		if s.language == "" && program.MatchString(line) {
			return fmt.Errorf("the block with %q contains commands, but starts with ``` instead of ```sh", line)
		}
		s.block.WriteString(line + "\n")
	default:
		if title := heading.FindStringSubmatch(line); title != nil {
			s.endProse()
			s.chapter = title[1]
		}
		s.prose.WriteString(line + "\n")
	}
	return nil
}

func (s *scanner) endBlock() {
	if s.language == "sh" {
		for _, command := range split(s.block.String()) {
			s.found = append(s.found, Command{s.chapter, command, false})
		}
	}
	s.block.Reset()
	s.inBlock = false
}

func (s *scanner) endProse() {
	for _, span := range inline.FindAllStringSubmatch(s.prose.String(), -1) {
		if command := strings.Join(strings.Fields(span[1]), " "); inlineCommand.MatchString(command) {
			s.found = append(s.found, Command{s.chapter, command, true})
		}
	}
	s.prose.Reset()
}

// split returns the commands of a block: a loop, a text for standard input, and lines that end with \ or | are one.
func split(block string) []string {
	var all, lines []string
	loops, delimiter := 0, ""
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		word := strings.TrimSpace(line)
		if len(lines) == 0 && (word == "" || strings.HasPrefix(word, "#")) {
			continue
		}
		lines = append(lines, line)
		switch {
		case delimiter != "":
			if word == delimiter {
				delimiter = ""
			}
		case heredoc.MatchString(line):
			delimiter = heredoc.FindStringSubmatch(line)[1]
		case strings.HasPrefix(word, "for "):
			loops++
		case word == "done":
			loops--
		}
		if loops == 0 && delimiter == "" && !strings.HasSuffix(word, `\`) && !strings.HasSuffix(word, "|") {
			all, lines = append(all, strings.Join(lines, "\n")), nil
		}
	}
	if len(lines) > 0 {
		all = append(all, strings.Join(lines, "\n"))
	}
	return all
}
