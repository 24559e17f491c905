package demo

// A theme is a kind of programme; * stands for a place.
type theme struct {
	names     []string
	summaries []string
}

var places = []string{
	"Aberystwyth",
	"Ashington",
	"Barrow-in-Furness",
	"Bethnal Green",
	"Blackpool",
	"Bootle",
	"Bridgend",
	"Clacton",
	"Coatbridge",
	"Craigavon",
	"Dagenham",
	"Dingwall",
	"Dudley",
	"Easington",
	"Fraserburgh",
	"Gateshead",
	"Great Yarmouth",
	"Grimsby",
	"Handsworth",
	"Hartlepool",
	"Hastings",
	"Huyton",
	"Inverclyde",
	"Jaywick",
	"Keighley",
	"Llanelli",
	"Londonderry",
	"Lowestoft",
	"Maryhill",
	"Merthyr Tydfil",
	"Moss Side",
	"Newham",
	"Newry",
	"Oldham",
	"Paisley",
	"Penzance",
	"Rhyl",
	"Rochdale",
	"Scunthorpe",
	"Skelmersdale",
	"St Pauls",
	"Thurso",
	"Toxteth",
	"Walsall",
	"Wisbech",
	"Ynys Môn",
	"Yeovil",
}

var themes = []theme{
	{
		[]string{"* Warm Welcome Spaces", "Warm Rooms, *", "Winter Warmth in *", "* Soup & Company", "A Warm Place: *"},
		[]string{
			"Heated community rooms with a hot meal, benefits advice and no questions asked, November to March.",
			"Somewhere warm in * for people who cannot afford to heat their home. Tea, soup, phone charging and " +
				"company.",
		},
	},
	{
		[]string{
			"* Food Pantry",
			"Community Larder, *",
			"* Fair Share Shop",
			"Pay-as-you-feel Café, *",
			"* Surplus Supper Club",
		},
		[]string{
			"A membership pantry: £4.50 a week buys around £25 of groceries, with fresh fruit and vegetables from " +
				"local growers.",
			"Surplus from supermarkets and farms around *, sorted by volunteers and shared out twice a week.",
		},
	},
	{
		[]string{
			"Young Carers *",
			"* Young Carers' Saturdays",
			"Time Off for Young Carers, *",
			"* Carers in School",
			"Breathing Space *",
		},
		[]string{
			"Respite, homework help and days out for children who look after a parent or a sibling.",
			"Trains a lead person in every secondary school in * to notice pupils with caring duties, and gives " +
				"them a break.",
		},
	},
	{
		[]string{
			"Debt Advice *",
			"* Money Matters",
			"Bailiff Helpline, *",
			"Straight Talk on Debt: *",
			"* Benefits Check",
		},
		[]string{
			"Regulated debt advice by appointment and by telephone. Average debt written off per household last " +
				"year: £9,340.",
			"Income checks that find unclaimed Pension Credit, Council Tax Support and Attendance Allowance.",
		},
	},
	{[]string{"* Befriending", "A Call a Week, *", "Good Neighbours *", "* Doorstep Friends", "Not Alone in *"},
		[]string{"Pairs trained volunteers with people over 70 who live alone, for a weekly visit or a telephone call.",
			"Neighbours in * who look in on each other; a coordinator matches, trains and keeps everyone safe."}},
	{
		[]string{
			"* Night Shelter",
			"Beds for Winter, *",
			"* Rough Sleepers Outreach",
			"Move-on Housing *",
			"A Key of My Own: *",
		},
		[]string{"Ten emergency beds in church halls from December to March, with a caseworker for every guest.",
			"Supports people from the shelter into a tenancy of their own and stays alongside for the first year."},
	},
	{
		[]string{
			"* Youth Hub",
			"Friday Night Football, *",
			"* Open Mic & Open Door",
			"Detached Youth Work *",
			"Street Games *",
		},
		[]string{
			"A safe place to be on weekday evenings for 11 to 18 year olds: sports hall, music room, kitchen and " +
				"youth workers who listen.",
			"Youth workers go where young people in * are, rather than waiting for them to come.",
		},
	},
	{
		[]string{
			"English for New Neighbours, *",
			"* Conversation Café",
			"Welcome Pack *",
			"* Refugee Mentoring",
			"Together in *",
		},
		[]string{
			"English classes with a crèche, so that mothers can come too. Entry levels 1 to 3, certificates from " +
				"the college.",
			"Volunteers in * help newly recognised refugees through the 28 days after asylum support ends.",
		},
	},
	{
		[]string{
			"* Hospice at Home",
			"Sitting Service *",
			"* Bereavement Circle",
			"Memory Walk, *",
			"* Night Nursing Fund",
		},
		[]string{"Nurses and trained sitters through the night, so that people can die at home if that is their wish.",
			"A monthly circle for people who have lost a partner, and one-to-one counselling for those who want it."},
	},
	{[]string{"* Community Garden", "Allotments for All, *", "Grow *", "* Orchard Project", "Green Gym *"},
		[]string{
			"Raised beds, a polytunnel and a wildlife pond on what used to be a car park. Harvest goes to the pantry.",
			"Gardening on prescription: GPs in * refer people with low mood or loneliness to weekly sessions.",
		}},
	{[]string{"Repair Café *", "* Library of Things", "Bike Kitchen, *", "* Uniform Exchange", "Toy Library *"},
		[]string{
			"Bring it broken, take it home mended. Volunteers fix small electricals, clothes and bicycles on first " +
				"Saturdays.",
			"Borrow a drill, a tent or a carpet cleaner for a few pounds; free for families who get free school meals.",
		}},
	{[]string{"* Dementia Choir", "Singing for the Brain, *", "Memory Café *", "* Day Club", "Tea Dance at *"},
		[]string{
			"Weekly singing for people living with dementia and their carers. No audition, much laughter.",
			"A Thursday club with lunch and transport, giving carers in * five hours to themselves.",
		}},
	{
		[]string{
			"Coding Club *",
			"* Digital Champions",
			"Tablets on Loan, *",
			"* Get Online Week",
			"Screens & Scones, *",
		},
		[]string{
			"Patient volunteers show older people how to video call, renew a prescription and spot a scam.",
			"Refurbished laptops with a year of data for households in * where children share one telephone for " +
				"homework.",
		},
	},
	{
		[]string{
			"* Domestic Abuse Outreach",
			"Safe at Home, *",
			"The Women's Room *",
			"* Freedom Group",
			"New Start Flats, *",
		},
		[]string{
			"Confidential support, safety planning and court accompaniment. The address of the service is not " +
				"published.",
			"A twelve-week group on recognising coercive control and rebuilding confidence, with a crèche.",
		},
	},
	{
		[]string{
			"Back to Work *",
			"* Job Club",
			"Interview Wardrobe, *",
			"Over-50s Employment *",
			"* Supported Internships",
		},
		[]string{
			"Mentors, mock interviews and bus fares for people who have been out of work for more than a year.",
			"Year-long placements with employers around * for young adults with learning disabilities; 7 in 10 " +
				"stay on.",
		},
	},
	{[]string{"* Counselling", "Talking Rooms *", "Mind Matters, *", "* Men's Shed", "Walk & Talk *"},
		[]string{"Low-cost counselling within three weeks of asking, while the usual wait is seven months.",
			"A workshop where men make things side by side, and talk or don't."}},
	{
		[]string{
			"Small Grants: *",
			"* Hardship Fund",
			"Crisis Grants *",
			"The * Almshouse Gift",
			"* Micro-grants, round 4",
		},
		[]string{
			"Grants of up to £500 for essentials such as a cooker, a bed or a school coat, decided within 48 hours.",
			"Up to £2,000 for residents' own ideas in *. A panel of neighbours decides; forms fit on one page.",
		},
	},
	{
		[]string{
			"* Breakfast Club",
			"Holiday Hunger *",
			"* Holiday Activities and Food",
			"Toast & Tales, *",
			"Fuel for Learning: *",
		},
		[]string{
			"Breakfast before school for every child who wants it, no means test and no fuss.",
			"Four weeks of sport, crafts and a hot lunch in the summer holidays for children who get free school " +
				"meals.",
		},
	},
	{
		[]string{
			"* Lifeboat Families",
			"Harbour Chaplaincy, *",
			"Fishermen's Welfare *",
			"* Slipway Restoration",
			"Seafarers' Rest, *",
		},
		[]string{
			"Emergency grants and a listening ear for crews and their families when a boat does not come home or a " +
				"season fails.",
			"Apprentices and retired shipwrights restore the slip at * together.",
		},
	},
	{[]string{"* Community Transport", "Dial-a-Ride *", "Wheels to Work, *", "* Hospital Lifts", "The * Hopper"},
		[]string{"Accessible minibuses and volunteer drivers for people whom the bus does not reach.",
			"Mopeds on loan for young people in * who have found a job but no way to get to it."}},
	{[]string{"Heritage Open Doors *", "* Oral History", "Save * Chapel", "The * Mural", "* Museum After Dark"},
		[]string{
			"Records the voices of people who worked in the mills, pits and docks, for schools and the county archive.",
			"Urgent roof repairs and a new use: rehearsal rooms, a kitchen and a hall for hire at *.",
		}},
	{[]string{"* Riverkeepers", "Clean Beaches *", "Hedgerow *", "* Tree Wardens", "Peatland Watch, *"},
		[]string{"Trains volunteers to sample water every month and publishes what they find.",
			"3,000 native trees and two miles of hedge with schools and farmers around *."}},
	{[]string{"Prison Letters *", "* Through the Gate", "Fresh Start *", "Family Days, *", "* Bakery Apprentices"},
		[]string{
			"Meets people at the prison gate on the day of release, with a phone, a coat and somewhere to sleep " +
				"that night.",
			"A social bakery in * that trains people with convictions; bread goes to three local schools.",
		}},
}
