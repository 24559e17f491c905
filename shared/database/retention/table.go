package retention

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// A Row describes one kind of record for operators.
type Row struct {
	Kind     string `json:"kind"`
	Setting  string `json:"setting"`  // "" if there is none
	KeepDays *int   `json:"keepDays"` // null if records are kept for ever or Rule is not ""
	Rule     string `json:"rule"`
	Status
}

// A Table has a row for each kind.
type Table []Row

// Show returns how long records are kept, and how many are due.
func (s *Store) Show(ctx context.Context) (Table, error) {
	var all Table
	for _, k := range s.kinds {
		status, err := s.Status(ctx, k)
		if err != nil {
			return nil, err
		}
		one := Row{Kind: k.Name, Setting: k.Setting, Rule: k.Rule, Status: status}
		if days := int(k.Keep / (24 * time.Hour)); !k.Forever && k.Rule == "" {
			one.KeepDays = &days
		}
		all = append(all, one)
	}
	return all, nil
}

// Text writes the table with a line of headings.
func (t Table) Text(out io.Writer) error {
	lines := []string{"KIND\tSETTING\tKEPT\tDUE\tOLDEST\tLAST RUN\tDELETED"}
	for _, r := range t {
		kept := r.Rule
		switch {
		case r.KeepDays != nil && *r.KeepDays == 1:
			kept = "1 day"
		case r.KeepDays != nil:
			kept = fmt.Sprintf("%d days", *r.KeepDays)
		case kept == "":
			kept = "for ever"
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%d",
			r.Kind, cmp.Or(r.Setting, "-"), kept, r.Due, moment(r.Oldest), moment(r.LastRun), r.Deleted))
	}
	return write(out, lines)
}

// A DeletedRow has the number of deleted records of a kind.
type DeletedRow struct {
	Kind    string `json:"kind"`
	Deleted int64  `json:"deleted"`
	Left    bool   `json:"left"` // more are due
}

// A DeletedTable has a row for each kind that was processed.
type DeletedTable []DeletedRow

// DeleteAll deletes the due records of every kind now. If it fails, the table counts the records deleted until then.
func (s *Store) DeleteAll(ctx context.Context) (DeletedTable, error) {
	var all DeletedTable
	for _, k := range s.kinds {
		deleted, complete, err := s.Delete(ctx, k)
		all = append(all, DeletedRow{k.Name, deleted, !complete})
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// Counts returns the numbers of deleted records by kind, without zeros.
func (d DeletedTable) Counts() map[string]int64 {
	counts := map[string]int64{}
	for _, r := range d {
		if r.Deleted > 0 {
			counts[r.Kind] = r.Deleted
		}
	}
	return counts
}

// Text writes the table with a line of headings.
func (d DeletedTable) Text(out io.Writer) error {
	lines := []string{"KIND\tDELETED\t"}
	for _, r := range d {
		left := ""
		if r.Left {
			left = "more are due: run it again"
		}
		lines = append(lines, fmt.Sprintf("%s\t%d\t%s", r.Kind, r.Deleted, left))
	}
	return write(out, lines)
}

func moment(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// write aligns the cells of the lines, which tabs separate.
func write(out io.Writer, lines []string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join(lines, "\n")) // Flush returns its error
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
