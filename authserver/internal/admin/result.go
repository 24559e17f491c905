package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A Result is the output of a command. Its JSON is the value itself.
type Result interface {
	// Text writes the result as text.
	Text(out io.Writer) error
}

// Print writes a result to out.
func Print(out io.Writer, asJSON bool, result Result) error {
	if !asJSON {
		return result.Text(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(result); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// A row is one item of a list.
type row interface {
	columns() []string
	cells() []string
}

// A List is a list of items of one type, one line each.
type List[R row] []R

// Text writes a table with a line of headings.
func (l List[R]) Text(out io.Writer) error {
	var heading R
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join(heading.columns(), "\t")) // the writer returns its error from Flush
	for _, one := range l {
		_, _ = fmt.Fprintln(table, strings.Join(one.cells(), "\t"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// An Outcome is the result of a change: a sentence, and its values for JSON.
type Outcome struct {
	Sentence string
	Values   map[string]any
}

// Text writes the sentence.
func (o Outcome) Text(out io.Writer) error {
	_, err := fmt.Fprintln(out, o.Sentence)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// MarshalJSON writes the values.
func (o Outcome) MarshalJSON() ([]byte, error) { return json.Marshal(o.Values) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
