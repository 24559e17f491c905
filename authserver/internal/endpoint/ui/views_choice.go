package ui

// Choice is the page on which a user says in which workspace an application may work that belongs to none.
type Choice struct {
	Frame
	Application string
	Domain      string      // of the application's own description
	Open        []Workspace // those that can be chosen
	Closed      []Workspace // the user's others: connectors are switched off there
	Ticket      string
	SwitchTo    string // local path of this very request, to sign in as somebody else
}

func (*Choice) page() string { return "choice" }
