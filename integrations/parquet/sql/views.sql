-- Views that the other queries use. They define waiting and lateness as `kernspan ranks` does, in integers.
-- Schema version 1.

-- Steps that were recorded from their begin to their end.
create view whole_steps as
select run, rank, step, duration_ns from steps where whole;

-- Collectives of whole steps, and for each rank how much longer it takes part than the one that arrives last. Place 1
-- is the last to arrive, place 2 the one that waits the least.
create view arrivals as
select c.run as run, c.step as step, c.group_name as group_name, c.number as number, c.rank as rank,
    c.duration_ns - min(c.duration_ns) over (partition by c.run, c.step, c.group_name, c.number) as wait_ns,
    row_number() over (partition by c.run, c.step, c.group_name, c.number order by c.duration_ns, c.rank) as place,
    count(*) over (partition by c.run, c.step, c.group_name, c.number) as ranks
from collectives c join whole_steps w on c.run = w.run and c.rank = w.rank and c.step = w.step
where not c.pairwise;

-- The last rank of each collective, and what the others wait for it: the one that waits the least, and the lower median.
create view last_arrivals as
select run, step, group_name, number,
    max(case when place = 1 then rank else -1 end) as rank,
    max(case when place = 2 then wait_ns else 0 end) as least_ns,
    max(case when place > 1 and 2 * place in (ranks + 1, ranks + 2) then wait_ns else 0 end) as median_ns
from arrivals
where ranks > 1
group by run, step, group_name, number;

-- The time that each rank waits in each group, and that of its pairwise exchanges.
create view group_waits as
select run, step, group_name, rank, sum(wait_ns) as wait_ns from arrivals group by run, step, group_name, rank;

create view exchanges as
select c.run as run, c.step as step, c.rank as rank, sum(c.duration_ns) as exchange_ns
from collectives c join whole_steps w on c.run = w.run and c.rank = w.rank and c.step = w.step
where c.pairwise
group by c.run, c.step, c.rank;

-- For each rank and group, how long the rank waits in other groups.
create view elsewhere as
select g.run as run, g.step as step, g.group_name as group_name, g.rank as rank,
    t.wait_ns - g.wait_ns + coalesce(e.exchange_ns, 0) as elsewhere_ns
from group_waits g
join (select run, step, rank, sum(wait_ns) as wait_ns from group_waits group by run, step, rank) t
    on g.run = t.run and g.step = t.step and g.rank = t.rank
left join exchanges e on g.run = e.run and g.step = e.step and g.rank = e.rank;

-- The lower median of a group's ranks. For a rank that waits elsewhere for longer, it is that of all others, too.
create view elsewhere_medians as
select run, step, group_name, max(case when 2 * place in (ranks - 1, ranks) then elsewhere_ns else 0 end) as median_ns
from (
    select run, step, group_name, elsewhere_ns,
        row_number() over (partition by run, step, group_name order by elsewhere_ns, rank) as place,
        count(*) over (partition by run, step, group_name) as ranks
    from elsewhere
) places
group by run, step, group_name;

-- What a rank is excused for: what it waits elsewhere, as far as that is more than the median of its group's others.
create view excuses as
select e.run as run, e.step as step, e.group_name as group_name, e.rank as rank,
    case when e.elsewhere_ns > m.median_ns then e.elsewhere_ns - m.median_ns else 0 end as excused_ns
from elsewhere e
join elsewhere_medians m on e.run = m.run and e.step = m.step and e.group_name = m.group_name;

-- What each group waits for a rank in a step, less what the rank is excused for.
create view lateness as
select l.run as run, l.step as step, l.group_name as group_name, l.rank as rank,
    case when l.least_ns > x.excused_ns then l.least_ns - x.excused_ns else 0 end as least_ns,
    case when l.median_ns > x.excused_ns then l.median_ns - x.excused_ns else 0 end as median_ns
from (
    select run, step, group_name, rank, sum(least_ns) as least_ns, sum(median_ns) as median_ns
    from last_arrivals
    group by run, step, group_name, rank
) l
join excuses x on l.run = x.run and l.step = x.step and l.group_name = x.group_name and l.rank = x.rank
where l.least_ns > 0;

-- The whole steps of each rank.
create view rank_steps as
select run, rank, count(*) as steps, sum(duration_ns) as step_ns from whole_steps group by run, rank;

-- Ranks that the others wait for, for at least 5 % of their steps, and the group that waits the longest. Times are of
-- all steps together.
create view late_rank_list as
select s.run as run, s.rank as rank, s.steps as steps, s.step_ns as step_ns, l.least_ns as least_ns,
    l.median_ns as waited_for_ns, g.group_name as group_name
from rank_steps s
join (
    select run, rank, sum(least_ns) as least_ns, sum(median_ns) as median_ns
    from (
        select run, rank, least_ns, median_ns,
            row_number() over (partition by run, step, rank order by least_ns desc, group_name) as place
        from lateness
    ) by_step
    where place = 1
    group by run, rank
) l on s.run = l.run and s.rank = l.rank
join (
    select run, rank, group_name,
        row_number() over (partition by run, rank order by sum(least_ns) desc, group_name) as place
    from lateness
    group by run, rank, group_name
) g on s.run = g.run and s.rank = g.rank and g.place = 1
where 20 * l.least_ns >= s.step_ns and s.step_ns > 0;
